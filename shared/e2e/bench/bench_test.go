package main

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

func TestReportNamesTheMachine(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run(t.Context(), []string{"-only", "nothing", "-memory", t.TempDir(), "-disk", t.TempDir()}, &stdout, &stderr); code != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	for _, want := range []string{" cores, ", "load average before: ", "Python 3", "ipykernel ", "| what | n |", "## How it is measured"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("the report does not contain %q:\n%s", want, &stdout)
		}
	}
}

func TestArgumentsThatCannotWork(t *testing.T) {
	for _, args := range [][]string{{"-unknown"}, {"-only", "("}, {"-only", "quick", "-keep", "page"}} {
		var stdout, stderr bytes.Buffer
		if code := run(t.Context(), args, &stdout, &stderr); code != 2 || stdout.Len() > 0 || stderr.Len() == 0 {
			t.Errorf("%q: exit code %d, stdout %q, stderr %q", args, code, &stdout, &stderr)
		}
	}
}

func TestQuantiles(t *testing.T) {
	var s samples
	for i := range 100 {
		s = append(s, time.Duration(100-i))
	}
	if s.median() != 51 || s.quantile(0.99) != 100 || s.quantile(1) != 100 || s.quantile(0) != 1 {
		t.Errorf("median %d, p99 %d, largest %d, smallest %d", s.median(), s.quantile(0.99), s.quantile(1), s.quantile(0))
	}
}

func TestWaysTakeTurns(t *testing.T) {
	var order string
	after := 0
	mark := func(name string) way {
		return way{name: name, do: func(context.Context) error { order += name; return nil }, after: func() error { after++; return nil }}
	}
	got, err := timing{n: 40, warmUps: 3}.inTurn(t.Context(), mark("a"), mark("b"))
	if err != nil || len(got) != 2 || len(got[0]) != 40 || len(got[1]) != 40 || after != 2*43 {
		t.Fatalf("samples %d, calls of after %d, %v", got, after, err)
	}
	first := map[string]bool{}
	for i := 0; i < len(order); i += 2 {
		round := order[i : i+2]
		first[round[:1]] = true
		if round != "ab" && round != "ba" {
			t.Errorf("round %q does not have each way once", round)
		}
	}
	if !first["a"] || !first["b"] {
		t.Errorf("the same way always came first: %s", order)
	}
}

func TestAWayThatFailsIsNamed(t *testing.T) {
	broken := errors.New("broken")
	for name, w := range map[string]way{
		"do":    {name: "the way", do: func(context.Context) error { return broken }},
		"after": {name: "the way", do: func(context.Context) error { return nil }, after: func() error { return broken }},
	} {
		_, err := timing{n: 1}.inTurn(t.Context(), w)
		if !errors.Is(err, broken) || !strings.Contains(err.Error(), "the way") {
			t.Errorf("%s failed with %v", name, err)
		}
	}
}

func TestTable(t *testing.T) {
	fast, slow := samples{time.Millisecond}, samples{1500 * time.Microsecond}
	var out bytes.Buffer
	writeTable(&out, []section{
		{title: "A", rows: []row{
			latency("base", fast),
			ratioAtMost(latency("ours", slow).comparedTo("base", slow, fast), 1.12),
			ratioAtLeast(rate("bytes", 3e6, slow).faster("base", slow, fast), 0.5),
			{what: "a | b", figure: "x\ny", target: within(time.Second, 60*time.Millisecond), note: "counts"},
			latency("without a base", slow).comparedTo("nothing", slow, nil),
		}},
		{title: "B", err: errors.New("no kernel")},
	})
	want := `| what | n | median or figure | p99 | ratio | to | target | | counts |
|---|--:|--:|--:|--:|---|---|---|---|
| **A** | | | | | | | | |
| base | 1 | 1 ms | 1 ms |   |   |   |   |   |
| ours | 1 | 1.5 ms | 1.5 ms | 1.50 | base | at most 1.12× | **missed** |   |
| bytes | 1 | 2000 MB/s |   | 0.67 | base | at least 0.5× | met |   |
| a \| b |   | x y |   |   |   | at most 60 ms | **missed** | counts |
| without a base | 1 | 1.5 ms | 1.5 ms |   |   |   |   |   |
| **B** | | | | | | | | |
| not measured: no kernel |   |   |   |   |   |   |   |   |
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestTimesAndBytesHaveUnits(t *testing.T) {
	for got, want := range map[string]string{
		short(123456 * time.Nanosecond): "0.123 ms", short(4567 * time.Microsecond): "4.57 ms",
		short(234567 * time.Microsecond): "235 ms", short(12345 * time.Millisecond): "12.3 s",
		bytesText(999): "999 B", bytesText(12345): "12.3 KB", bytesText(10_150_000): "10.15 MB",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestABusyMachineIsSaid(t *testing.T) {
	for load, want := range map[string]bool{"0.90, 9.00, 9.00": false, "1.10, 0.00, 0.00": true, "12.50, 1.00, 1.00": true, "unknown": false} {
		if got := busy(load, 2) != ""; got != want {
			t.Errorf("load %q on two cores: busy %t, want %t", load, got, want)
		}
	}
}

func TestAgesOfStamps(t *testing.T) {
	now := time.UnixMilli(5_000)
	var s samples
	if err := s.add(now, "4.5\n4.75\n"); err != nil || len(s) != 2 || s[0] != 500*time.Millisecond || s[1] != 250*time.Millisecond {
		t.Errorf("ages %v, %v", s, err)
	}
	if err := s.add(now, "4.5\nno stamp\n"); err == nil {
		t.Error("a line that is no stamp was accepted")
	}
}
