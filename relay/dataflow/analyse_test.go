package dataflow

import (
	"errors"
	"strings"
	"testing"
	"time"

	"colabrelay/relay/kernelcall"
	"colabrelay/shared/contract"
	"colabrelay/shared/stacks"
)

const digestOfX = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// Any code in the kernel may make the answer.
func TestAnswersThatPythonCanNotHaveGiven(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		answer string
		known  bool
		fails  bool
	}{
		"right":             {`[{"digest":"` + digestOfX + `","reads":["größe"]}]`, true, false},
		"more fields":       {`[{"digest":"` + digestOfX + `","new":1}]`, true, false},
		"no JSON":           {`[`, false, true},
		"no list":           {`{}`, false, true},
		"another kind":      {`[{"reads":1}]`, false, true},
		"too few":           {`[]`, false, true},
		"too many":          {`[{},{}]`, false, true},
		"no digest":         {`[{}]`, false, false},
		"digest":            {`[{"digest":"x"}]`, false, false},
		"a name with ANSI":  {`[{"digest":"` + digestOfX + `","reads":["\u001b[31m"]}]`, false, false},
		"a sentence":        {`[{"digest":"` + digestOfX + `","may_store":["do this now"]}]`, false, false},
		"a long name":       {`[{"digest":"` + digestOfX + `","reads":["` + strings.Repeat("x", 801) + `"]}]`, false, false},
		"an inner name":     {`[{"digest":"` + digestOfX + `","functions":{"f":{"calls":{"g":{"passed":["\n"]}}}}}]`, false, false},
		"an origin's name":  {`[{"digest":"` + digestOfX + `","origins":{"f":{"called":[""]}}}]`, false, false},
		"a problem":         {`[{"digest":"` + digestOfX + `","problem":"a syntax error"}]`, false, false},
		"problem and names": {`[{"digest":"` + digestOfX + `","problem":"p","reads":["x"]}]`, false, false},
	} {
		facts, err := decode([]byte(test.answer), 1)
		switch {
		case (err != nil) != test.fails:
			t.Errorf("%s: the error is %v", name, err)
		case err == nil && (facts[0].known() != test.known || !test.known && len(facts[0].Reads) > 0):
			t.Errorf("%s: the facts are %+v", name, facts[0])
		}
	}
}

func TestNoAnswerWhileAnotherRunWaitsForInput(t *testing.T) {
	t.Parallel()
	k := borrow(t, stacks.Old(t))
	e, err := k.Submit(t.Context(), contract.Submit{Code: "input()", WaitSeconds: 20})
	must(t, err)
	var late *kernelcall.LateError
	if _, err = Analyse(t.Context(), k, []string{"x = 1"}); !errors.As(err, &late) {
		t.Errorf("the error is %v", err)
	}
	_, err = k.Interrupt(t.Context(), e.ExecutionID)
	must(t, err)
	list, err := k.List(t.Context(), 10)
	must(t, err)
	for _, e := range list.Executions {
		if e.Status == contract.StatusQueued {
			t.Errorf("%s is still queued", e.ExecutionID)
		}
	}
}

func TestAnalyseEndsWithItsContext(t *testing.T) {
	t.Parallel()
	k := borrow(t, stacks.Old(t))
	e, err := k.Submit(t.Context(), contract.Submit{Code: "import time\nprint(1, flush=True)\ntime.sleep(60)", WaitSeconds: 20, OutputAfterSeconds: 0.001})
	must(t, err)
	if _, err = Analyse(within(t, time.Second), k, []string{"x = 1"}); err == nil {
		t.Error("an answer arrived while the kernel slept")
	}
	_, err = k.Interrupt(t.Context(), e.ExecutionID)
	must(t, err)
	if facts := k.analyse([]string{"x = 1"}); facts[0].Problem != "" {
		t.Errorf("the facts are %+v", facts[0])
	}
}

func TestTooManyCells(t *testing.T) {
	t.Parallel()
	if _, err := Analyse(t.Context(), nil, make([]string, MaxCells+1)); err == nil {
		t.Error("one cell too many was analysed")
	}
	if facts, err := Analyse(t.Context(), nil, nil); err != nil || len(facts) != 0 {
		t.Errorf("of no cells: %v, %v", facts, err)
	}
}
