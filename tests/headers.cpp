// Holds nothing: the target that precompiles the tests' common headers needs a source.
