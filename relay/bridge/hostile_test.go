package bridge

import (
	"context"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"colabrelay/shared/enrollment"
)

// otherKey is the public key of somebody else.
func otherKey(t *testing.T) string {
	t.Helper()
	offer, err := enrollment.NewOffer()
	if err != nil {
		t.Fatal(err)
	}
	return offer.PublicKey()
}

// shownKey is the executor's key in the output of the start cell.
var shownKey = regexp.MustCompile(`"key\\?":\s*\\?"[A-Za-z0-9_-]{43}`)

// A tab changes one thing on its way. Nothing is paired, and the secret stays sealed.
func TestWhatATabChangesIsRefused(t *testing.T) {
	var recorded string // the answer of another bridge
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		s.nb.show = func(source, text string) (string, error) {
			if in(source, "pairs the executor") {
				recorded = text
			}
			return stream(text), nil
		}
		s.pairs(Request{})
	})
	jobOf := regexp.MustCompile(`"job":"[0-9a-f]{32}"`)
	outputOf := func(title string, change func(source, text string) string) func(*setup) {
		return func(s *setup) {
			s.nb.show = func(source, text string) (string, error) {
				if in(source, title) {
					text = change(source, text)
				}
				return stream(text), nil
			}
		}
	}
	for name, c := range map[string]struct {
		arrange func(s *setup)
		want    error
	}{
		"the relay's key": {func(s *setup) {
			key := otherKey(t)
			s.vm.change = func(source string) string { return keyLine.ReplaceAllString(source, `RELAY_KEY = "`+key+`"`) }
		}, ErrCell}, // the executor can't open the grant and says so
		"the executor's key": {outputOf("starts the executor", func(_, text string) string {
			return shownKey.ReplaceAllString(text, `"key":"`+otherKey(t))
		}), ErrCell},
		"the relay's own key comes back": {outputOf("starts the executor", func(source, text string) string {
			return shownKey.ReplaceAllString(text, `"key":"`+keyLine.FindStringSubmatch(source)[1])
		}), ErrNotGenuine},
		"a weak key": {outputOf("starts the executor", func(_, text string) string {
			return shownKey.ReplaceAllString(text, `"key":"`+base64.RawURLEncoding.EncodeToString(make([]byte, 32)))
		}), ErrNotGenuine},
		"the address in the answer": {outputOf("pairs the executor", func(_, text string) string {
			return strings.Replace(text, "https://vm.example", "https://evil.example", 1)
		}), ErrNotGenuine},
		"the same under this job's id": {outputOf("pairs the executor", func(source, _ string) string {
			return jobOf.ReplaceAllString(recorded, `"job":"`+jobLine.FindStringSubmatch(source)[1]+`"`)
		}), ErrNotGenuine},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				c.arrange(s)
				if _, err := s.start(Request{}); !errors.Is(err, c.want) {
					t.Errorf("got %v; want %v", err, c.want)
				}
				s.untouched()
				s.vm.change, s.nb.show = nil, nil
				s.pairs(Request{}) // and the next call is not affected
			})
		})
	}
}

// A tab that answers nonsense, too much, or never ends the bridge within its limits.
func TestAHostileTabIsBounded(t *testing.T) {
	shows := func(outputs string) func(*setup) {
		return func(s *setup) { s.nb.show = func(string, string) (string, error) { return outputs, nil } }
	}
	never := func(call string) func(*setup) {
		return func(s *setup) {
			s.nb.before = func(ctx context.Context, c, _ string) error {
				if c == call {
					<-ctx.Done()
					return ctx.Err()
				}
				return nil
			}
		}
	}
	for name, c := range map[string]struct {
		arrange func(s *setup)
		want    error
		within  time.Duration
		left    bool // a cell, because nothing can be removed
	}{
		"not JSON":             {shows(`garbage`), ErrCell, time.Second, false},
		"many small outputs":   {shows("[" + strings.Repeat(`{"output_type":"stream","text":"x"},`, 40_000) + `{}]`), ErrCell, time.Second, false},
		"thousands of reports": {shows(stream(strings.Repeat(`colab-relay-enrollment: {"job": "00000000000000000000000000000000", "ready": true}`+"\n", 5_000))), ErrCell, time.Second, false},
		"never runs":           {never("run_code_cell"), ErrNotReady, readyLimit, false},
		"never deletes":        {never("delete_cell"), nil, removeLimit, true},
		"an error of no known kind": {func(s *setup) {
			s.nb.before = func(_ context.Context, call, _ string) error {
				if call == "run_code_cell" {
					return errors.New("\x1b]0;evil\x07" + strings.Repeat("x", 100_000))
				}
				return nil
			}
		}, ErrPage, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				c.arrange(s)
				began := time.Now()
				_, err := s.start(Request{})
				if !errors.Is(err, c.want) {
					t.Errorf("got %v; want %v", err, c.want)
				}
				if took := time.Since(began); took > c.within {
					t.Errorf("it took %s", took)
				}
				if err != nil && (len(err.Error()) > 4_000 || strings.ContainsAny(err.Error(), "\x1b\x07\n")) {
					t.Errorf("the error has %d bytes, or control characters", len(err.Error()))
				}
				if !c.left {
					s.nb.before = nil
					s.clean()
				}
			})
		})
	}
}
