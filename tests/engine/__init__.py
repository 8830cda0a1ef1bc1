"""Tests of the engine: schemas, patterns and choices as masks over vocabularies."""
