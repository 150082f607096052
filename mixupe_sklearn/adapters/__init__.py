"""The same method for other data than tables: pictures, sounds and graphs.

They bring inputs to the network; what is mixed and how is the business of the core.
"""
