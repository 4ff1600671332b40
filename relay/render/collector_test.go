package render

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"colabrelay/shared/contract"
)

// log makes events with offsets.
type log []contract.Event

func (l *log) add(ev contract.Event) {
	ev.Offset = int64(len(*l))
	*l = append(*l, ev)
}

func (l *log) print(name, text string) {
	l.add(contract.Event{Type: contract.EventStream, Name: name, Text: text})
}

func (l *log) display(typ contract.EventType, id string, mime map[string]string) {
	ev := contract.Event{Type: typ, DisplayID: id, Data: map[string]json.RawMessage{}}
	for k, v := range mime {
		ev.Data[k], _ = json.Marshal(v)
	}
	l.add(ev)
}

func noBlobs(context.Context, contract.Blob, io.Writer) error { return errors.New("no blobs here") }

func view(t *testing.T, events []contract.Event, opt Options) View {
	t.Helper()
	c := New(opt)
	for _, ev := range events {
		c.Add(ev)
	}
	v := c.View(t.Context(), noBlobs)
	if most := max(opt.Limit, defaultLimit) + 5*leastRunes; !opt.Page && texts(v) > most {
		t.Errorf("%d characters, want at most %d", texts(v), most)
	}
	return v
}

// texts counts the characters of all texts of a view, without markers.
func texts(v View) int {
	marker := regexp.MustCompile(`\[… .* …\]\n`)
	all := []string{v.Stdout, v.Stderr, v.Result}
	if v.Error != nil {
		all = append(all, v.Error.Traceback)
	}
	for _, o := range v.Outputs {
		all = append(all, o.Text)
	}
	return runes(marker.ReplaceAllString(strings.Join(all, ""), ""))
}

func TestClearOutput(t *testing.T) {
	for _, wait := range []bool{false, true} {
		var l log
		l.print("stdout", strings.Repeat("old\n", 4000))
		l.display(contract.EventDisplayData, "", map[string]string{"text/plain": "old"})
		l.add(contract.Event{Type: contract.EventClearOutput, Wait: wait})
		if v := view(t, l, Options{}); wait != (v.Stdout != "") || wait != (len(v.Outputs) > 0) {
			t.Errorf("wait %v, before the next output: %d characters", wait, len(v.Stdout))
		}
		fresh := strings.Repeat("new\n", 2*foldRows)
		l.print("stdout", fresh)
		if v := view(t, l, Options{}); v.Stdout != fresh || len(v.Outputs) != 0 || v.Truncated {
			t.Errorf("wait %v: %.30q %v", wait, v.Stdout, v.Outputs)
		}
	}
}

// The text of a widget stands where its display does, and a long one is saved.
func TestAWidgetIsShownAsItIsNow(t *testing.T) {
	var l log
	l.display(contract.EventDisplayData, "w", map[string]string{"text/plain": "0%", "application/vnd.jupyter.widget-view+json": "{}"})
	l.print(contract.Stdout, "printed\n")
	l.display(contract.EventWidgetView, "w", map[string]string{"text/plain": "100%"})
	l.display(contract.EventWidgetView, "earlier", map[string]string{"text/plain": strings.Repeat("x", 10_000)})
	c := New(Options{Dir: t.TempDir()})
	for _, ev := range l {
		c.Add(ev)
	}
	v := c.View(t.Context(), nil)
	if len(v.Outputs) != 2 || v.Outputs[0].Text != "100%" || len(v.Outputs[1].Text) > 5_000 || len(v.Files) != 1 {
		t.Errorf("the view has %+v and the files %v", v.Outputs, v.Files)
	}
}

func TestAGapIsMarked(t *testing.T) {
	var l log
	l.print("stdout", "before")
	l = append(l, contract.Event{Offset: 1, Type: contract.EventGap, Bytes: 5000, Events: 7})
	l = append(l, contract.Event{Offset: 8, Type: contract.EventStream, Name: "stdout", Text: "after\n"})
	v := view(t, l, Options{})
	if v.Stdout != "before\n[… 5000 bytes are not in the log on the VM …]\nafter\n" || v.NextOffset != 9 {
		t.Errorf("%q %d", v.Stdout, v.NextOffset)
	}
	if v := view(t, l[:2], Options{}); v.NextOffset != 8 {
		t.Errorf("a gap at the end: next is %d", v.NextOffset)
	}
}

func TestALongResultAndTracebackAreShortenedAndSaved(t *testing.T) {
	var l log
	l.print("stdout", strings.Repeat("out\n", 6000))
	l.display(contract.EventExecuteResult, "", map[string]string{"text/plain": strings.Repeat("row\n", 15_000)})
	const frames, over = 60_000, 2 << 20
	l.add(contract.Event{Type: contract.EventError, EName: "First", Traceback: []string{"displayed"}})
	for size, saved := range map[int64]int{frames: len("displayed\n\n") + frames, over: over} {
		ref, _ := json.Marshal(contract.BlobRef{Blob: contract.Blob{Number: 1, SHA256: "abc", Bytes: size}})
		c := New(Options{Dir: t.TempDir()})
		for _, ev := range append(l[:len(l):len(l)], contract.Event{Offset: 9, Type: contract.EventError, EName: "E", Traceback: []string{"cut"}, Data: map[string]json.RawMessage{"text/plain": ref}}) {
			c.Add(ev)
		}
		v := c.View(t.Context(), func(_ context.Context, _ contract.Blob, w io.Writer) error {
			_, err := io.WriteString(w, strings.Repeat("frame\n", int(size)/6+1)[:size])
			return err
		})
		checkLong(t, saved, v)
	}
}

func checkLong(t *testing.T, traceback int, v View) {
	t.Helper()
	kinds := map[string]int{}
	for _, f := range v.Files {
		b, err := os.ReadFile(f.Path)
		if err != nil {
			t.Error(err)
		}
		kinds[f.Kind] = len(b)
	}
	if kinds["result"] != 60_000 || kinds["traceback"] != traceback || !strings.HasPrefix(v.Error.Traceback, "displayed\n\nframe") {
		t.Errorf("saved %v", kinds)
	}
	if n := runes(v.Stdout) + runes(v.Result) + runes(v.Error.Traceback); n > 40_000 {
		t.Errorf("%d characters in all", n)
	}
}

func TestOriginalsAreSavedAndBlobsFetched(t *testing.T) {
	big, svg := noisePNG(t, 1700, 80), "<svg xmlns='http://www.w3.org/2000/svg'/>"
	var l log
	l.display(contract.EventDisplayData, "", map[string]string{"image/png": base64.StdEncoding.EncodeToString(tinyPNG(t)), "text/plain": "<Figure>"})
	l.display(contract.EventDisplayData, "", map[string]string{"image/svg+xml": svg})
	ref, _ := json.Marshal(contract.BlobRef{Blob: contract.Blob{Number: 3, SHA256: "abc", Bytes: int64(len(big))}})
	l.add(contract.Event{Type: contract.EventDisplayData, Data: map[string]json.RawMessage{"image/png": ref}})
	c := New(Options{Dir: t.TempDir()})
	for _, ev := range l {
		c.Add(ev)
	}
	v := c.View(t.Context(), func(_ context.Context, blob contract.Blob, w io.Writer) error {
		if blob.Number != 3 || blob.SHA256 != "abc" {
			t.Errorf("asked for %+v", blob)
		}
		_, err := w.Write(big)
		return err
	})
	if len(v.Pictures) != 2 || len(v.Files) != 3 || len(v.Outputs) != 3 {
		t.Fatalf("%d pictures, files %v, notes %v", len(v.Pictures), v.Files, v.Notes)
	}
	for i, want := range [][]byte{tinyPNG(t), []byte(svg), big} {
		got, err := os.ReadFile(v.Outputs[i].Path)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("output %d: saved %d bytes of %d, %v", i, len(got), len(want), err)
		}
	}
	if p := v.Pictures[1]; p.Width > maxEdge || len(p.Base64()) > maxBase64 {
		t.Errorf("shown %d×%d in %d bytes", p.Width, p.Height, len(p.Base64()))
	}
}

// FuzzEvents renders any events, one a line, as a whole and as a page. The texts are bounded and
// have no control characters, and nothing is saved outside the folder.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"type":"stream","name":"stdout","text":"a\rb\u001b[2J\n"}`+"\n"+`{"offset":1,"type":"error","ename":"E\u001b","evalue":"v\u0007","traceback":["\u001b[31mx"]}`), 100)
	f.Add([]byte(`{"type":"display_data","display_id":"d","data":{"image/png":"AAAA","text/html":"<b>\u009b"}}`+"\n"+`{"type":"update_display_data","display_id":"d","data":{"../../x":"1"}}`), 500)
	f.Add([]byte(`{"type":"execute_result","data":{"image/png":{"blob":{"number":-1,"sha256":"x","bytes":-5}},"text/plain":["a","b"]}}`), 0)
	f.Add([]byte(`{"type":"gap","bytes":9,"events":3,"cut":"c\u001b[2J"}`+"\n"+`{"type":"clear_output","wait":true}`+"\n"+`{"type":"input_request","prompt":"p\u202e"}`), 5000)
	f.Fuzz(func(t *testing.T, lines []byte, limit int) {
		limit = max(0, limit) % 10_000
		var events []contract.Event
		for line := range strings.Lines(string(lines)) {
			var ev contract.Event
			if json.Unmarshal([]byte(line), &ev) == nil && len(ev.Data) < 10 {
				events = append(events, ev)
			}
		}
		for _, opt := range []Options{{Limit: limit}, {Limit: limit, Page: true}} {
			wantSafe(t, view(t, events, opt), limit)
		}
	})
}

// wantSafe checks the texts of a view: text of a stream, a traceback and a result have their
// line breaks, and everything else is cleaned where it is shown.
func wantSafe(t *testing.T, v View, limit int) {
	t.Helper()
	shown := []string{v.Stdout, v.Stderr, v.Result}
	if v.Error != nil {
		shown = append(shown, v.Error.Traceback)
	}
	for _, text := range shown {
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' && r != '\n' && r != '\t' }) {
			t.Errorf("%q is shown", text)
		}
	}
	// A page shows its first event completely.
	if n := texts(v); n > 2*limit+20_000 {
		t.Errorf("%d characters are shown for the limit %d", n, limit)
	}
}

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
