package execution

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// Whatever the code displays or raises, each event is within its bound and lists what was
// omitted from it, and later events are complete.
func TestEveryEventIsBoundedAndListsWhatWasCut(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	const show = "from IPython.display import display, publish_display_data as show\n"
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		q := newBench(t, s, settings{})
		for _, c := range []struct{ code, cut string }{
			{show + "show({'text/plain': 'kept', **{f'x/{n}': 'v' for n in range(2_000)}})", "more MIME types"},
			{show + "show({'text/plain': 'kept', **{f'x/{n}': 'v' for n in range(64)}})", "1 more MIME type of"},
			{show + "show({'text/plain': 'kept', 'x' * 1_000_000: 'v'})", "1 more MIME type of"},
			{show + "show({'text/plain': 'kept'}, metadata={'m': 'x' * 300_000})", "metadata"},
			{show + "show({'text/plain': 'kept', 'text/html': '<' * 65_000, **{f'x/{n}': '<' * 60_000 for n in range(40)}})", ""},
			{show + "display('kept', display_id='d' * 100_000)", "display_id"},
			{"class E(Exception):\n  def _render_traceback_(self): return [''] * 3_000\nprint('kept')\nraise E()", "2200 frames"},
			{"class E(Exception):\n  def _render_traceback_(self): return ['kept'] + ['f' * 50_000] * 20\nraise E('e' * 100_000)", "bytes of the error's text"},
			{"get_ipython().kernel.session.send(get_ipython().kernel.iopub_socket, 'stream', {'name': 'n' * 100_000, 'text': 'kept'}, parent=get_ipython().kernel.get_parent())", ""},
		} {
			x := q.run(c.code + "\n")
			cut, kept := "", false
			for _, e := range x.Events {
				line, err := json.Marshal(e)
				if err != nil || len(line) > contract.MaxEventBytes {
					t.Errorf("%.90q: an event of %d bytes, %v", c.code, len(line), err)
				}
				kept = kept || strings.Contains(string(line), "kept")
				cut += e.Cut
			}
			if !strings.Contains(cut, c.cut) || c.cut == "" && cut != "" || !kept || !x.End {
				t.Errorf("%.90q: %s, cut %.300q, kept %v, %d events", c.code, x.Status, cut, kept, len(x.Events))
			}
		}
		id := q.submit("input('?' * 100_000)", 0)
		x := q.settle(id)
		if last := x.Events[len(x.Events)-1]; !strings.Contains(last.Cut, "bytes of the prompt") {
			t.Errorf("cut of the prompt: %q", last.Cut)
		}
	})
}

func TestTracebackKeepsItsEndsAtTheBound(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 2 * maxFrames, 2*maxFrames + 1, 50_000} {
		all := make([]string, n)
		for i := range all {
			all[i] = fmt.Sprint(i)
		}
		e, cut := boundError("E", "v", all)
		if e.Traceback[0] != "0" || e.Traceback[len(e.Traceback)-1] != fmt.Sprint(n-1) {
			t.Errorf("%d frames: %q ... %q", n, e.Traceback[0], e.Traceback[len(e.Traceback)-1])
		}
		if over := n > 2*maxFrames; over != (cut != "") || over && len(e.Traceback) != 2*maxFrames+1 || !over && len(e.Traceback) != n {
			t.Errorf("%d frames: %d kept, cut %q", n, len(e.Traceback), cut)
		}
	}
}

func TestListHoldsNoTraceback(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	q := newBench(t, stacks.Old(t), settings{})
	q.run("raise ValueError('x' * 60_000)")
	list := q.journal.List(10)
	raw, err := json.Marshal(list)
	if err != nil || len(raw) > 4<<10 || list[0].Error == nil || list[0].Error.EName != "ValueError" {
		t.Errorf("%d bytes, %v: %.300s", len(raw), err, raw)
	}
}
