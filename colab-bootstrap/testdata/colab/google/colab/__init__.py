"""Stand-in for Colab's package: the parts that the cell uses."""
