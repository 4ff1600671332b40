package nbrun

// RetryPolicy says which exceptions are transient.
type RetryPolicy struct{}

// NewRetryPolicy returns the usual policy with what retry_on adds.
func NewRetryPolicy(retryOn string) (RetryPolicy, error) { return RetryPolicy{}, nil }

// Retryable reports whether an exception with this name and message is transient.
func (p RetryPolicy) Retryable(ename, evalue string) bool { return false }

// NeedsCleanGPU reports whether the GPU's memory must be freed before the retry.
func (p RetryPolicy) NeedsCleanGPU(ename, evalue string) bool { return false }
