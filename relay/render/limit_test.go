package render

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"colabrelay/shared/contract"
)

// shapes are outputs that do not fit into a view of any limit.
var shapes = map[string]func(l *log){
	"one long line": func(l *log) {
		for range 10 {
			l.print("stdout", strings.Repeat("x", contract.MaxStreamEvent))
		}
	},
	"everything at once": func(l *log) {
		l.print("stdout", strings.Repeat("out\n", 4_000))
		l.print("stdout", strings.Repeat("more\n", 3_000))
		l.print("stderr", strings.Repeat("err\n", 4_000))
		for range 60 {
			l.display(contract.EventDisplayData, "", map[string]string{"text/plain": strings.Repeat("shown ", 100)})
		}
		l.display(contract.EventExecuteResult, "", map[string]string{"text/plain": strings.Repeat("row\n", 15_000)})
		l.add(contract.Event{Type: contract.EventError, EName: "E", EValue: strings.Repeat("v", 900), Traceback: []string{strings.Repeat("frame\n", 10_000)}})
	},
}

// A view has at most its limit and shows as much as that; its head and the pages from
// NextOffset on contain everything.
func TestAViewKeepsItsLimitAndMissesNothing(t *testing.T) {
	for name, fill := range shapes {
		for _, limit := range []int{600, 36_000} {
			t.Run(fmt.Sprintf("%s, %d", name, limit), func(t *testing.T) {
				var l log
				fill(&l)
				v := view(t, l, Options{Dir: t.TempDir(), Limit: limit})
				all := of(l, 0)
				if !v.Truncated && (v.Stdout != all["stdout"] || v.Stderr != all["stderr"]) {
					t.Fatal("text is missing and truncated does not say so")
				}
				if n := texts(v); v.Truncated && n < limit*3/4 {
					t.Errorf("%d characters are shown", n)
				}
				if !v.Truncated {
					return
				}
				rest := of(l, v.NextOffset)
				for stream, text := range map[string]string{"stdout": v.Stdout, "stderr": v.Stderr} {
					if before := strings.TrimSuffix(all[stream], rest[stream]); !strings.HasPrefix(text, before) {
						t.Errorf("the head of %s lacks some of the %d characters before offset %d: %.100q", stream, len(before), v.NextOffset, text)
					}
				}
				out, err := pages(t, l, v.NextOffset, limit)
				if out != rest["stdout"] || err != rest["stderr"] {
					t.Errorf("the pages have %d and %d bytes of %d and %d", len(out), len(err), len(rest["stdout"]), len(rest["stderr"]))
				}
				checkFiles(t, v, all)
			})
		}
	}
}

// of returns the text of each stream from offset on.
func of(l log, offset int64) map[string]string {
	all := map[string]*strings.Builder{"stdout": {}, "stderr": {}}
	for _, ev := range l[offset:] {
		if ev.Type == contract.EventStream {
			all[ev.Name].WriteString(ev.Text)
		}
	}
	return map[string]string{"stdout": all["stdout"].String(), "stderr": all["stderr"].String()}
}

// pages reads everything from offset on, page by page.
func pages(t *testing.T, l log, offset int64, limit int) (stdout, stderr string) {
	t.Helper()
	var out, err strings.Builder
	for offset < int64(len(l)) {
		c := New(Options{Page: true, From: offset, Limit: limit})
		added := 0
		for _, ev := range l[offset:] {
			if !c.Room(ev) {
				break
			}
			c.Add(ev)
			added++
		}
		v := c.View(t.Context(), noBlobs)
		if v.Truncated || added == 0 {
			t.Fatalf("the page from %d has %d events, truncated %v", offset, added, v.Truncated)
		}
		if n := texts(v); added > 1 && n > limit*5/4+5*leastRunes {
			t.Errorf("a page of %d events has %d characters", added, n)
		}
		offset = v.NextOffset
		out.WriteString(v.Stdout)
		err.WriteString(v.Stderr)
	}
	return out.String(), err.String()
}

// checkFiles checks that the files which a view names have the complete streams.
func checkFiles(t *testing.T, v View, all map[string]string) {
	t.Helper()
	named := 0
	for _, f := range v.Files {
		want, isStream := all[f.Kind]
		if !isStream {
			continue
		}
		named++
		if b, err := os.ReadFile(f.Path); err != nil || string(b) != want {
			t.Errorf("%s has %d of %d bytes, %v", f.Path, len(b), len(want), err)
		}
	}
	if named == 0 {
		t.Error("no file is named")
	}
}
