"""The jobs: each reads the artefact before it and writes its own. One file a stage, discovered by file name."""
