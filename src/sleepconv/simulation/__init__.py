"""Simulations and closed forms of the paper's theory, on a single set of neurons that share; no network needed."""

from sleepconv.simulation import circuit, convergence, euler, robustness, theory

__all__ = ["circuit", "convergence", "euler", "robustness", "theory"]
