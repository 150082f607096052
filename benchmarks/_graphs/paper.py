"""Test errors (%) of the MixupE paper on graphs, by set and method; means over ten folds.

Y. Zou, V. Verma, S. Mittal, W. H. Tang, H. Pham, J. Kannala, Y. Bengio, A. Solin and K. Kawaguchi,
"MixupE: Understanding and Improving Mixup from Directional Derivative Perspective", UAI 2023, table
of graph data sets. The deviations that it prints are between 0.01 and 0.09, by their size those of
accuracies between 0 and 1; they are left out here. Epoch, alpha and eta are those with the best
test accuracy.
"""

ERRORS = {
    "MUTAG": {"erm": 10.15, "mixup": 10.67, "mixupe": 10.06},
    "NCI1": {"erm": 17.79, "mixup": 18.59, "mixupe": 17.74},
    "PTC": {"erm": 38.37, "mixup": 34.87, "mixupe": 35.50},
    "PROTEINS": {"erm": 25.43, "mixup": 24.44, "mixupe": 23.72},
    "IMDBBINARY": {"erm": 25.60, "mixup": 25.30, "mixupe": 25.20},
    "IMDBMULTI": {"erm": 50.33, "mixup": 49.27, "mixupe": 48.53},
}
