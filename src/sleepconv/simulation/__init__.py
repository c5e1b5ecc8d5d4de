"""The paper's theory and its simulated circuits, on a single set of neurons that share."""
