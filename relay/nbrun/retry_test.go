package nbrun

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestTransientErrorsAreRetried(t *testing.T) {
	usual, err := NewRetryPolicy("")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		ename, evalue string
		want          bool
	}{
		{"ConnectionError", "", true}, {"ConnectionResetError", "", true}, {"ConnectionRefusedError", "", true}, {"APIConnectionError", "", true},
		{"ReadTimeout", "", true}, {"TimeoutError", "", true}, {"APITimeoutError", "", true}, {"BrokenPipeError", "", true}, {"IncompleteRead", "", true},
		{"RemoteDisconnected", "", true}, {"ResourceExhausted", "", true}, {"ServiceUnavailable", "", true}, {"TooManyRequests", "", true},
		{"OutOfMemoryError", "", true}, {"outofmemoryerror", "", true}, {"RuntimeError", "CUDA out of memory. Tried to allocate 2 GiB", true},
		{"AcceleratorError", "CUDA error: out of memory", true},
		{"HTTPError", "HTTP Error 503: Service Unavailable", true},                                     // urllib
		{"HTTPError", "429 Client Error: Too Many Requests for url: https://example.com", true},        // requests
		{"HTTPStatusError", "Server error '502 Bad Gateway' for url 'https://example.com'", true},      // httpx
		{"RateLimitError", "Error code: 429 - {'error': {}}", true},                                    // openai
		{"ClientResponseError", "503, message='Service Unavailable', url='https://example.com'", true}, // aiohttp
		{"OSError", "HTTP/1.1 504 Gateway Time-out", true}, {"IOError", "status code: 500", true}, {"OSError", "[Errno 104] Connection reset by peer", true},
		{"BlockingIOError", "Resource temporarily unavailable", true},

		{"ValueError", "500 rows are missing", false}, {"HTTPError", "HTTP Error 404: Not Found", false}, {"HTTPError", "501 Server Error: Not Implemented", false},
		{"HTTPError", "HTTP Error 5030", false}, {"ValueError", "", false}, {"MyTimeoutErrors", "", false}, {"NameError", "name 'TimeoutError' is not defined", false},
		{"KeyboardInterrupt", "connection reset", false}, {"", "", false}, {"MemoryError", "", false},
	} {
		if got := usual.Retryable(test.ename, test.evalue); got != test.want {
			t.Errorf("%s: %q is retried: %t", test.ename, test.evalue, got)
		}
	}
	for evalue, want := range map[string]bool{"CUDA out of memory": true, "HTTP Error 503": false} {
		if usual.NeedsCleanGPU("RuntimeError", evalue) != want {
			t.Errorf("%q does not say %t", evalue, want)
		}
	}
	if !usual.NeedsCleanGPU("OutOfMemoryError", "") {
		t.Error("PyTorch's exception does not free the GPU's memory")
	}
}

func TestRetryOnAddsOrReplaces(t *testing.T) {
	for retryOn, test := range map[string]struct{ yes, no string }{
		"":                                {"ConnectionError", "FlakyError"},
		"FlakyError, quota [exceeded":     {"FlakyError ConnectionError ValueError:Quota_[EXCEEDED_today", "ValueError:quota"},
		"*flaky*":                         {"VeryFlakyThing ConnectionError", "ValueError"},
		"none":                            {"", "ConnectionError OutOfMemoryError OSError:connection_reset ValueError"},
		" NONE , flaky?rror,":             {"FlakyError", "ConnectionError KeyboardInterrupt:flakyerror"},
		"*":                               {"ValueError", "KeyboardInterrupt"},
		strings.Repeat("a,", 49) + "none": {"ConnectionError", "ValueError"}, // not first: a text
	} {
		p, err := NewRetryPolicy(retryOn)
		if err != nil {
			t.Errorf("%q: %v", retryOn, err)
		}
		for want, list := range map[bool]string{true: test.yes, false: test.no} {
			for one := range strings.FieldsSeq(list) {
				ename, evalue, _ := strings.Cut(one, ":")
				if p.Retryable(ename, strings.ReplaceAll(evalue, "_", " ")) != want {
					t.Errorf("%q: %s is not %t", retryOn, one, want)
				}
			}
		}
	}
	for _, wrong := range []string{strings.Repeat("a,", 51), strings.Repeat("a", 201)} {
		if _, err := NewRetryPolicy(wrong); !errors.Is(err, ErrSpec) {
			t.Errorf("%.10q: %v", wrong, err)
		}
	}
	if usual, _ := NewRetryPolicy(""); usual.Retryable("FlakyError", "quota [exceeded") {
		t.Error("one policy changed another")
	}
}

func TestRetryWaitDoubles(t *testing.T) {
	for retry, want := range map[int]time.Duration{0: time.Second, 1: time.Second, 2: 2 * time.Second, 3: 4 * time.Second, 6: 32 * time.Second, 7: time.Minute, 8: time.Minute, 1000: time.Minute} {
		if got := RetryWait(retry, 0.5); got != want {
			t.Errorf("retry %d waits %s, want %s", retry, got, want)
		}
	}
	if least, most := RetryWait(7, 0), RetryWait(7, 1); least != 48*time.Second || most != 72*time.Second {
		t.Errorf("from %s to %s", least, most)
	}
}
