package e2e

import (
	"strings"
	"testing"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// allTools starts an executor on a stack, and a host whose relay serves all toolsets.
func allTools(t *testing.T, s stacks.Stack, hold string) *harness.Host {
	t.Helper()
	e := borrowExecutor(t, s)
	return startHost(t, e.Ready.LocalURL, harness.HostConfig{Env: []string{"RELAY_TOOLSETS=all", "RELAY_HOLD=" + hold}})
}

const someFrames = `
import pandas as pd
class Loud:
    def __str__(self): print("__str__ ran"); return "loud"
    __repr__ = __str__
df = pd.DataFrame({"city": ["Bonn", "Ulm", "Bonn", None], "price": [3.5, 1.0, 2.0, None]})
loud = pd.DataFrame({"x": [1, 2], "o": pd.Series([Loud(), Loud()], dtype=object)})
`

func TestPreviewDataframe(t *testing.T) {
	stacks.Each(t, func(t *testing.T, s stacks.Stack) {
		h := allTools(t, s, "40s")
		want(t, quick(t, h, someFrames+"before = len(In)"), map[string]any{"status": "succeeded"})
		preview := func(args map[string]any) harness.Answer { return call(t, h, "preview_dataframe", args) }

		a := preview(map[string]any{"name": "df", "filter": "price >= 2 and city is not None", "sort_by": "price", "columns": "price,city"})
		want(t, a, map[string]any{"success": true, "rows": "[[2 Bonn] [3.5 Bonn]]", "row_count": 2, "truncated": false, "engine": "pandas"})
		if !strings.Contains(a.Text, "2 rows, 2 columns (pandas)\n--- rows [") || !strings.Contains(a.Text, "]\nprice (float64) | city (") || !strings.Contains(a.Text, "\n2 | Bonn\n") {
			t.Error(a.Text)
		}
		want(t, preview(map[string]any{"name": "loud"}), map[string]any{"rows": "[[1 <__main__.Loud>] [2 <__main__.Loud>]]"})
		wantError(t, preview(map[string]any{"name": "dff"}), "not_found")
		wantError(t, preview(map[string]any{"name": "loud", "sort_by": "o"}), "bad_request")
		wantError(t, call(t, h, "query_dataframes", map[string]any{"sql": "FROM df"}), "not_supported")
		want(t, quick(t, h, "len(In) - before, [n for n in dir() if 'relay' in n or 'preview' in n]"), map[string]any{"result": "(1, [])"})
	})
}

func wantError(t *testing.T, a harness.Answer, code string) {
	t.Helper()
	if a.Error() != code || strings.Contains(a.Text, "__str__ ran") {
		t.Errorf("%s, want %s: %s", a.Error(), code, a.Text)
	}
}

func TestQueryDataframes(t *testing.T) {
	tier.Long(t)
	t.Parallel()
	s, ok := stacks.Data(t)
	if !ok {
		return
	}
	h := allTools(t, s, "8s")
	_, frames := follow(t, h, quick(t, h, someFrames).String("execution_id"), 0)
	want(t, frames, map[string]any{"status": "succeeded"})
	query := func(sql string) harness.Answer {
		return call(t, h, "query_dataframes", map[string]any{"sql": sql, "timeout_seconds": 300})
	}
	want(t, query("SELECT city, sum(price) FROM df GROUP BY city ORDER BY city"), map[string]any{
		"success": true, "rows": "[[Bonn 5.5] [Ulm 1] [<nil> <nil>]]", "row_count": 3, "engine": "duckdb", "truncated": false,
	})
	a := query("FROM loud")
	want(t, a, map[string]any{"rows": "[[1] [2]]", "row_count": 2})
	if !strings.Contains(a.Text, "Note: left out of loud, because") || strings.Contains(a.Text, "__str__ ran") {
		t.Error(a.Text)
	}
	for sql, code := range map[string]string{
		"FROM nope": "not_found", "FROM Loud": "not_supported", "FROM read_csv('/etc/passwd')": "bad_request", "SELECT 1; SELECT 2": "bad_request",
	} {
		wantError(t, query(sql), code)
	}
	endless := "WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t) SELECT count(*) FROM t"
	wantError(t, query(endless), "timed_out") // the call's own time is shorter
	want(t, quick(t, h, "1"), map[string]any{"result": "1"})
}
