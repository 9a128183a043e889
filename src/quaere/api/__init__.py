"""The Python interface, behind `import quaere`: synchronous, typed, and usable inside a running event loop."""
