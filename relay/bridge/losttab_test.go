package bridge

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"colabrelay/relay/page"
)

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
