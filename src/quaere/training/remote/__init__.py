"""Training on a server that speaks the Tinker interface, behind the interface of the local actors."""
