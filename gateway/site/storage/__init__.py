"""The backends of a site as one process holds them: opened, checked, guarded, and replaced while they are away."""
