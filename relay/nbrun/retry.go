package nbrun

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Bounds of retry_on.
const (
	maxRetryOn     = 50  // entries
	maxRetryOnText = 200 // bytes of one
)

// The first wait before a retry, and the longest; each further wait is twice the one before.
const (
	firstRetryWait = time.Second
	lastRetryWait  = time.Minute
	retryJitter    = 0.2 // of a wait, more or less, so that many runs do not retry at once
)

// transientNames are names of exceptions that usually pass by themselves, as patterns.
var transientNames = []string{
	"connection*error", "*connectionerror", "*timeout", "*timeouterror", "brokenpipeerror", "incompleteread",
	"remotedisconnected", "resourceexhausted", "serviceunavailable", "toomanyrequests", "outofmemoryerror",
}

// transientMessages match messages of exceptions with other names. A status of HTTP needs a word
// that says what the number is: "500 rows are missing" is none.
var transientMessages = []*regexp.Regexp{
	gpuMemory,
	regexp.MustCompile(`(?i)connection reset|temporarily unavailable`),
	regexp.MustCompile(`(?i)\b(?:HTTP(?:/[0-9.]+)?(?: error| status)?(?: code)?|(?:error|status)(?:[ _]code)?)[ :=]+` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b(?:client|server) error '?` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b` + transientStatus + `,? (?:client error|server error|message=|too many requests|internal server error|bad gateway|service unavailable|gateway time-?out)`),
}

// transientStatus are the statuses of HTTP that usually pass by themselves.
const transientStatus = `(?:429|500|502|503|504)`

// gpuMemory matches messages of PyTorch.
var gpuMemory = regexp.MustCompile(`(?i)CUDA out of memory|CUDA error: out of memory`)

// RetryPolicy says which exceptions are transient. Its zero value retries none.
type RetryPolicy struct {
	names    []string // patterns of path.Match, in lower case
	texts    []string // parts of messages, in lower case
	messages []*regexp.Regexp
}

// NewRetryPolicy returns the usual policy with what retry_on adds: entries separated by commas,
// each the name of an exception, which may contain * and ?, or a part of its message. The first
// entry "none" leaves out the usual policy. The error is an ErrSpec.
func NewRetryPolicy(retryOn string) (RetryPolicy, error) {
	p := RetryPolicy{names: transientNames, messages: transientMessages}
	entries := strings.Split(strings.ToLower(retryOn), ",")
	if strings.TrimSpace(entries[0]) == "none" {
		p, entries = RetryPolicy{}, entries[1:]
	}
	if len(entries) > maxRetryOn {
		return RetryPolicy{}, wrong("retry_on", "it has %d entries, and at most %d are accepted", len(entries), maxRetryOn)
	}
	for _, entry := range entries {
		entry = strings.TrimSpace(entry)
		_, err := path.Match(entry, "")
		switch {
		case entry == "":
			continue
		case len(entry) > maxRetryOnText:
			return RetryPolicy{}, wrong("retry_on", "an entry has more than %d bytes: name the exception, or a part of its message", maxRetryOnText)
		case err == nil:
			p.names = append(slices.Clip(p.names), entry)
		}
		p.texts = append(p.texts, entry)
	}
	return p, nil
}

// Retryable reports whether an exception with this name and message is transient. An interrupt
// never is.
func (p RetryPolicy) Retryable(ename, evalue string) bool {
	if ename == "KeyboardInterrupt" {
		return false
	}
	name, message := strings.ToLower(ename), strings.ToLower(evalue)
	for _, pattern := range p.names {
		if ok, _ := path.Match(pattern, name); ok {
			return true
		}
	}
	return slices.ContainsFunc(p.texts, func(text string) bool { return strings.Contains(message, text) }) ||
		slices.ContainsFunc(p.messages, func(m *regexp.Regexp) bool { return m.MatchString(evalue) })
}

// NeedsCleanGPU reports whether the GPU's memory must be freed before the retry.
func (p RetryPolicy) NeedsCleanGPU(ename, evalue string) bool {
	return ename == "OutOfMemoryError" || gpuMemory.MatchString(evalue)
}

// RetryWait returns how long to wait before the retry with this number, which counts from 1:
// 1 s, 2 s, 4 s and so on, at most a minute, and up to a fifth more or less as random says, which
// is from 0 to 1.
func RetryWait(retry int, random float64) time.Duration {
	wait := lastRetryWait
	if shift := max(0, retry-1); shift < 6 {
		wait = firstRetryWait << shift
	}
	return time.Duration(float64(wait) * (1 + retryJitter*(2*random-1)))
}
