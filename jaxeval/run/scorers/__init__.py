"""The package's own metrics, each as one registered :class:`jaxeval.metrics.registry.Metric`."""
