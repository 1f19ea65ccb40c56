"""From specs and locks to tagged images: bases, inputs, plan, bake file, BuildKit, and building twice to compare."""
