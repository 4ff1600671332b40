package colabapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"colabrelay/relay/client"
	"colabrelay/relay/vm"
	"colabrelay/shared/bounded"
)

const (
	// maxAnswer bounds an answer of the API; one of a thousand VMs with their tokens has 3 MB.
	maxAnswer = 8 << 20
	// callTimeout bounds one attempt of a call, in addition to the time that the API was asked
	// to wait.
	callTimeout = 30 * time.Second
	// callTries and retryLimit bound the attempts of one call.
	callTries  = 5
	retryLimit = 90 * time.Second
	// maxRetryAfter is the longest pause that an answer may ask for. An hour would look like
	// a hang; the error then says what to do.
	maxRetryAfter = 30 * time.Second
)

// call is a call of the API. Every one may be repeated: a VM's creation by its requestId.
type call struct {
	doing  string // for errors, such as "start a VM"
	method string
	path   string
	query  url.Values
	body   any // nil for none
	wait   time.Duration
}

// do sends a call, again if Google is overloaded or gave no answer, and decodes the answer
// into out unless that is nil. It returns the time by Google's clock, zero if unknown.
func (b *Backend) do(ctx context.Context, c call, out any) (time.Time, error) {
	res, err := backoff.Retry(ctx, func() (answer, error) { return b.attempt(ctx, c) },
		backoff.WithMaxTries(callTries), backoff.WithMaxElapsedTime(retryLimit))
	if after, ok := errors.AsType[*pause](err); ok {
		err = after.cause
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: %w", c.doing, err)
	}
	if out == nil {
		return res.date, nil
	}
	// null is valid JSON for every type, and would look like an empty list.
	if err := json.Unmarshal(res.body, out); err != nil || !bytes.HasPrefix(bytes.TrimSpace(res.body), []byte("{")) {
		return time.Time{}, fmt.Errorf("%s: Google's answer is not the JSON that the API documents", c.doing)
	}
	return res.date, nil
}

// pause is the error of an attempt after which the service asks to wait.
type pause struct {
	cause error
	until *backoff.RetryAfterError
}

func (p *pause) Error() string { return p.cause.Error() }

// Unwrap lets backoff find how long to wait.
func (p *pause) Unwrap() error { return p.until }

// attempt sends a call once; with a fresh access token a second time, if the first was refused.
func (b *Backend) attempt(ctx context.Context, c call) (answer, error) {
	stale := ""
	for {
		access, err := b.tokens.get(ctx, stale)
		if err != nil {
			return answer{}, backoff.Permanent(err)
		}
		res, err := b.send(ctx, c, access)
		if err != nil {
			return answer{}, retryable(ctx, err)
		}
		if res.status/100 == 2 {
			return res, nil
		}
		failure := parseFailure(res.status, res.body)
		if failure.unauthenticated() && stale == "" {
			stale = access.token
			continue
		}
		return answer{}, b.refusal(failure, res)
	}
}

// refusal says whether a refused call may be repeated.
func (b *Backend) refusal(f *failure, res answer) error {
	err := f.meaning(b.tokens.project())
	switch {
	case !f.temporary():
		return backoff.Permanent(err)
	case res.retryAfter > maxRetryAfter:
		return backoff.Permanent(fmt.Errorf("%w; Google asks to wait %s", err, res.retryAfter.Round(time.Second)))
	case res.retryAfter > 0:
		return &pause{err, &backoff.RetryAfterError{Duration: res.retryAfter}}
	}
	return err
}

// retryable returns err so that it is tried again, unless the caller's time is over.
func retryable(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, bounded.ErrTooLong) {
		return backoff.Permanent(err)
	}
	return err
}

// answer is an answer of the API.
type answer struct {
	status     int
	body       []byte
	retryAfter time.Duration // zero if none is asked for
	date       time.Time     // Google's clock; zero if unknown
}

func (b *Backend) send(ctx context.Context, c call, access access) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+c.wait)
	defer cancel()
	req, err := b.newRequest(ctx, c, access)
	if err != nil {
		return answer{}, err
	}
	began := time.Now()
	// The transport is used directly, because http.Client would follow redirects.
	res, err := client.EndingWithContext(b.transport).RoundTrip(req)
	if err != nil {
		b.log.DebugContext(ctx, "called the Colab API", "method", c.method, "path", c.path, "dur", time.Since(began), "err", err.Error())
		return answer{}, fmt.Errorf("no answer from %s: %w", req.URL.Host, err)
	}
	defer res.Body.Close()
	body, err := bounded.ReadAll(res.Body, maxAnswer)
	b.log.DebugContext(ctx, "called the Colab API", "method", c.method, "path", c.path, "status", res.StatusCode, "bytes", len(body), "dur", time.Since(began))
	if err != nil {
		return answer{}, fmt.Errorf("read the answer of %s: %w", req.URL.Host, err)
	}
	date, _ := http.ParseTime(res.Header.Get("Date"))
	return answer{res.StatusCode, body, retryAfter(res.Header.Get("Retry-After"), date), date}, nil
}

func (b *Backend) newRequest(ctx context.Context, c call, access access) (*http.Request, error) {
	var body io.Reader
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, c.method, b.site.api()+c.path, body)
	if err != nil {
		return nil, err
	}
	req.URL.RawQuery = c.query.Encode()
	req.Header.Set("Authorization", "Bearer "+access.token)
	req.Header.Set("User-Agent", "colab-relay")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if access.quotaProject != "" { // unverified: other Google APIs want it from application default credentials
		req.Header.Set("X-Goog-User-Project", access.quotaProject)
	}
	return req, nil
}

// retryAfter reads the header of that name: seconds, or a time by the server's clock.
func retryAfter(text string, date time.Time) time.Duration {
	if seconds, err := strconv.Atoi(strings.TrimSpace(text)); err == nil {
		return time.Duration(min(max(seconds, 0), 24*3600)) * time.Second
	}
	at, err := http.ParseTime(text)
	if err != nil || date.IsZero() {
		return 0
	}
	return min(max(at.Sub(date), 0), 24*time.Hour)
}

// gone reports whether err is the API's own answer that there is no such VM.
func gone(err error) bool { return errors.Is(err, vm.ErrGone) }
