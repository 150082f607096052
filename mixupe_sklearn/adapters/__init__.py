"""The same method for other data than tables: images, sounds and graphs.

They bring inputs to the network; what is mixed and how is the business of the core.
"""
