"""Locally connected networks that become convolutional in their sleep."""
