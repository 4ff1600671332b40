package harness

import (
	"strings"
	"testing"
)

func TestOnlyProcessesThatFuzzBuildNoPrograms(t *testing.T) {
	for args, want := range map[string]bool{
		"x.test -test.run=^$ -test.fuzz=^FuzzA$ -test.paniconexit0": true, "x.test -test.fuzzworker -test.run=A -test.fuzz=^FuzzA$": true,
		"x.test -test.run=^$ -test.bench=.": false, "x.test -test.fuzz=FuzzA": false, "x.test -test.run=^$ -test.fuzz=": false, "x.test": false,
	} {
		if got := onlyFuzzes(strings.Fields(args)); got != want {
			t.Errorf("%s: %v", args, got)
		}
	}
}
