"""Stands in for Colab's package of this name: the parts that the cell uses."""
