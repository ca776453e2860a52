"""Metrics: pure functions of one episode's arrays; the caller vmaps and jits."""
