package bridge

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
	"unicode/utf8"

	bootstrap "colabrelay/colab-bootstrap"
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

// The tab is lost at each call of the page in turn, before the page saw it or after. The next
// call, in the tab that came back, pairs, leaves no cell and starts no second executor.
func TestATabThatIsLostAndComesBack(t *testing.T) {
	for _, after := range []bool{false, true} {
		for at := 1; ; at++ {
			lost := false
			synctest.Test(t, func(t *testing.T) {
				s := newSetup(t)
				calls := 0
				s.nb.before = func(context.Context, string, string) error {
					if calls++; calls == at {
						lost = true
						s.nb.lose()
						if !after {
							return page.ErrTabLost
						}
					}
					return nil
				}
				_, err := s.start(Request{})
				if !lost {
					return
				}
				if err != nil && !errors.Is(err, page.ErrTabLost) {
					t.Errorf("call %d: %v", at, err)
				}
				if left := len(s.nb.titles()) > 1; err != nil && left != strings.Contains(err.Error(), "colab-relay:") && !strings.Contains(err.Error(), "may be left") {
					t.Errorf("call %d: a cell is left: %t; the error says %v", at, left, err)
				}
				s.nb = s.nb.again()
				if paired, err := s.start(Request{}); err != nil || paired.Runtime.Name != "default" {
					t.Errorf("call %d: the next call: %+v, %v", at, paired, err)
				}
				s.clean()
				if s.vm.starts != 1 {
					t.Errorf("call %d: %d executors were started", at, s.vm.starts)
				}
			})
			if !lost {
				t.Logf("lost at %d calls, after the page acted: %t", at-1, after)
				break
			}
		}
	}
}

// A relay that was killed left a cell. It can't know its id. What a person wrote stays, also
// in that cell.
func TestTheCellOfAKilledRelayIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(t)
		left := marked("#@title colab-relay: starts the executor\n")
		for id, source := range map[string]string{
			"left": left, "left without its last line break": strings.TrimRight(left, "\n"),
			"mine: about it": "# about colab-relay" + mark + "print(1)", "mine: begins with more": "x = 1\n" + left, "mine: ends with more": left + "x = 1\n",
			"mine: has its last line": "x = 1" + left[strings.Index(left, mark):], "mine: empty": "",
		} {
			s.nb.cells = append(s.nb.cells, page.Cell{ID: id, Type: "code", Source: source})
		}
		s.nb.cells = append(s.nb.cells, page.Cell{ID: "mine: text", Type: "markdown", Source: left})
		before := len(s.nb.cells)
		if _, err := s.start(Request{}); err != nil {
			t.Fatal(err)
		}
		for _, c := range s.nb.cells {
			if strings.HasPrefix(c.ID, "left") {
				t.Errorf("the cell %q is still there", c.ID)
			}
		}
		if len(s.nb.cells) != before-2 {
			t.Errorf("of %d cells, %d are left", before, len(s.nb.cells))
		}
	})
}

// The page did not say which cell it inserted, and shows a person's cell without an id.
func TestACellWithoutAnIDIsNotRemoved(t *testing.T) {
	s := newSetup(t)
	s.nb.cells = append(s.nb.cells, page.Cell{Type: "code", Source: "mine = 1"})
	if left := (&cell{nb: s.nb}).remove(); left != "" || len(s.nb.cells) != 2 {
		t.Errorf("%q; cells %q", left, s.nb.titles())
	}
}

// FuzzOutputs reads any outputs that Colab's page shows for a cell, and the report in them. What
// an error shows of them is one short, plain line.
func FuzzOutputs(f *testing.F) {
	for _, seed := range []string{
		`[{"output_type":"stream","text":["colab-relay-enroll:","{}\n"]},{"output_type":"error","ename":"E\u001b","evalue":"v"}]`,
		`[{"output_type":"stream","text":"a\nb"},{"output_type":"display_data","text":5},null,{}]`, `{}`, `[[]]`, "",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, outputs []byte) {
		text, err := outputText(outputs)
		if err != nil || !json.Valid(outputs) && len(outputs) > 0 {
			if err == nil {
				t.Fatalf("%q gives %q", outputs, text)
			}
			return
		}
		if line := shown(text); utf8.RuneCountInString(line) > maxShownRunes || strings.ContainsFunc(line, unicode.IsControl) {
			t.Errorf("an error shows %q", line)
		}
		_, _ = bootstrap.ReadEnrollment("0123456789abcdef0123456789abcdef", text)
	})
}
