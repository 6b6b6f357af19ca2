"""The processes of a server: one, or several workers, their signals and shared numbers."""
