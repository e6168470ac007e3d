"""Quality of a model's answers: the arithmetic, the engines that answer, and the variants of a spec to compare."""
