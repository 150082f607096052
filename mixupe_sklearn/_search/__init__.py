"""The parts of the search: what to try, where to keep it, who runs which trial, and how."""
