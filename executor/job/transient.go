package job

import (
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"colabrelay/shared/kernelpy"
)

// transientNames are names of exceptions that usually pass by themselves, as patterns.
var transientNames = []string{
	"connection*error", "*connectionerror", "*timeout", "*timeouterror", "brokenpipeerror", "incompleteread",
	"remotedisconnected", "resourceexhausted", "serviceunavailable", "toomanyrequests", "outofmemoryerror",
}

// transientMessages match messages of exceptions with other names. A status of HTTP needs a word
// that says what the number is: "500 rows are missing" is none.
var transientMessages = []*regexp.Regexp{
	regexp.MustCompile(`(?i)CUDA out of memory|CUDA error: out of memory`),
	regexp.MustCompile(`(?i)connection reset|temporarily unavailable`),
	regexp.MustCompile(`(?i)\b(?:HTTP(?:/[0-9.]+)?(?: error| status)?(?: code)?|(?:error|status)(?:[ _]code)?)[ :=]+` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b(?:client|server) error '?` + transientStatus + `\b`),
	regexp.MustCompile(`(?i)\b` + transientStatus + `,? (?:client error|server error|message=|too many requests|internal server error|bad gateway|service unavailable|gateway time-?out)`),
}

// transientStatus are the statuses of HTTP that usually pass by themselves.
const transientStatus = `(?:429|500|502|503|504)`

// transient reports whether an exception usually passes by itself. An interrupt never does.
func transient(ename, evalue string) bool {
	name := strings.ToLower(ename)
	if name == "keyboardinterrupt" {
		return false
	}
	return slices.ContainsFunc(transientNames, func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }) ||
		slices.ContainsFunc(transientMessages, func(m *regexp.Regexp) bool { return m.MatchString(evalue) })
}

// freeGPU lets go of the last attempt's traceback, whose frames keep what they had on the GPU:
// an attempt after "CUDA out of memory" would have less memory than the one before.
var freeGPU = sync.OnceValue(func() string {
	return kernelpy.Call{Function: "cleanup.free_gpu", Delivery: kernelpy.Reply}.Code(true)
})

// retryWait is how long to wait after an attempt, which counts from 1: 1 s, 2 s, 4 s and so on,
// at most a minute, and up to a fifth more or less, so that many jobs do not retry at once.
func retryWait(attempt int) time.Duration {
	wait := min(time.Minute, time.Second<<min(attempt-1, 6))
	return time.Duration(float64(wait) * (0.8 + 0.4*rand.Float64()))
}
