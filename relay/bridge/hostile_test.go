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

	"colabrelay/relay/page"
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
		"a key of another length": {outputOf("starts the executor", func(_, text string) string {
			return shownKey.ReplaceAllString(text, `"key":"AAAA`)
		}), ErrCell},
		"the grant": {func(s *setup) {
			s.vm.change = func(source string) string {
				return grantLine.ReplaceAllString(source, `GRANT = "`+strings.Repeat("A", 400)+`"`)
			}
		}, ErrCell},
		"the job in the start cell": {func(s *setup) {
			s.vm.change = func(source string) string {
				return jobLine.ReplaceAllString(source, `JOB = "`+strings.Repeat("0", 32)+`"`)
			}
		}, ErrCell},
		"the address in the answer": {outputOf("pairs the executor", func(_, text string) string {
			return strings.Replace(text, "https://vm.example", "https://evil.example", 1)
		}), ErrNotGenuine},
		"the instance in the answer": {outputOf("pairs the executor", func(_, text string) string {
			return strings.Replace(text, "instance-1", "instance-2", 1)
		}), ErrNotGenuine},
		"no MAC": {outputOf("pairs the executor", func(source, _ string) string {
			return `colab-relay-enrollment: {"job": "` + jobLine.FindStringSubmatch(source)[1] + `", "answer": {"url": "https://vm.example", "instance_id": "instance-1"}}` + "\n"
		}), ErrNotGenuine},
		"the answer of another bridge": {outputOf("pairs the executor", func(string, string) string { return recorded }), ErrCell},
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

// Whoever changes both keys reads the secret. This is the limit that docs/security.md states:
// the page and the VM are trusted with it, because Google runs both.
func TestATabThatChangesBothKeysIsTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		var middle *enrollment.Response
		s.nb.show = func(source, text string) (string, error) {
			if in(source, "starts the executor") {
				middle, _ = enrollment.NewResponse(jobLine.FindStringSubmatch(source)[1], keyLine.FindStringSubmatch(source)[1])
				text = shownKey.ReplaceAllString(text, `"key":"`+middle.PublicKey())
			}
			if in(source, "pairs the executor") {
				if grant, err := middle.Open(grantLine.FindStringSubmatch(source)[1]); err != nil || grant.NgrokToken != someToken {
					t.Errorf("the tab cannot read the grant: %v", err)
				}
			}
			return stream(text), nil
		}
		if _, err := s.start(Request{}); err == nil {
			t.Error("paired")
		}
		s.untouched()
	})
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
		"not JSON":               {shows(`garbage`), ErrCell, time.Second, false},
		"not a list":             {shows(`{"output_type": "stream"}`), ErrCell, time.Second, false},
		"a list of other things": {shows(`[1, "two", null]`), ErrCell, time.Second, false},
		"outputs of other kinds": {shows(`[{"output_type": "display_data", "data": {}}, {"output_type": "stream", "text": {"a": 1}}, {}]`), ErrNotReady, readyLimit, false},
		"one large output":       {shows(stream(strings.Repeat("x", maxOutputBytes))), ErrCell, time.Second, false},
		"many small outputs":     {shows("[" + strings.Repeat(`{"output_type":"stream","text":"x"},`, 40_000) + `{}]`), ErrCell, time.Second, false},
		"many that fit":          {shows("[" + strings.Repeat(`{"output_type":"stream","text":"x"},`, 20_000) + `{}]`), ErrCell, time.Second, false},
		"thousands of reports":   {shows(stream(strings.Repeat(`colab-relay-enrollment: {"job": "00000000000000000000000000000000", "ready": true}`+"\n", 5_000))), ErrCell, time.Second, false},
		"an endless line":        {shows(stream("colab-relay-enrollment: " + strings.Repeat("[", 100_000))), ErrCell, time.Second, false},
		"never lists its cells":  {never("get_cells"), ErrPage, editLimit + removeLimit, false},
		"never inserts":          {never("add_code_cell"), ErrPage, editLimit + removeLimit, false},
		"never runs":             {never("run_code_cell"), ErrNotReady, readyLimit, false},
		"never changes a cell":   {never("update_cell"), ErrPage, editLimit, false},
		"never deletes":          {never("delete_cell"), nil, removeLimit, true},
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

func TestIDsOfHostileTabs(t *testing.T) {
	for _, id := range []string{"", strings.Repeat("x", maxCellID+1)} {
		synctest.Test(t, func(t *testing.T) {
			s := newSetup(t)
			nb := &renaming{s.nb, id}
			if _, err := s.b.Start(t.Context(), nb, Request{}, nil); !errors.Is(err, ErrPage) || len(err.Error()) > 1_000 {
				t.Errorf("got %v", err)
			}
			s.untouched()
		})
	}
}

// renaming gives new cells an id of its own.
type renaming struct {
	*fakeNotebook
	id string
}

func (n *renaming) AddCode(ctx context.Context, index int, language, code string) (string, error) {
	_, err := n.fakeNotebook.AddCode(ctx, index, language, code)
	return n.id, err
}

// A tab that shows a thousand cells with the mark makes a bridge delete only some of them.
func TestTheCellsThatAreSweptAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		for range 1000 {
			s.nb.cells = append(s.nb.cells, page.Cell{ID: "left", Type: "code", Source: marked("")})
		}
		deleted := 0
		s.nb.before = func(_ context.Context, call, _ string) error {
			if call == "delete_cell" {
				deleted++
			}
			return nil
		}
		if _, err := s.start(Request{}); err != nil {
			t.Error(err)
		}
		if deleted != maxSwept+1 {
			t.Errorf("%d cells were deleted", deleted)
		}
	})
}
