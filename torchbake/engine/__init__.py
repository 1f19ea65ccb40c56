"""The container engine: its images, its containers, its GPUs, and what it exports."""
