package dataflow

import (
	"fmt"
	"testing"
)

func TestUnmetDemands(t *testing.T) {
	t.Parallel()
	mount := &Facts{PageCalls: []string{"drive.mount", "files.upload"}}
	imports := &Facts{PageCalls: []string{colab}}
	both := &Facts{Accelerators: []string{"gpu", "tpu"}}
	for _, test := range []struct {
		cells []Cell
		m     Machine
		want  string
	}{
		{[]Cell{{"a", imports}, {"b", mount}}, Machine{}, "[{b drive.mount, files.upload needs Colab's page in a browser: here it fails or waits for ever}]"},
		{[]Cell{{"b", mount}}, Machine{}, "[]"},
		{[]Cell{{"c", both}}, Machine{GPU: true}, "[{c it uses a TPU, and this VM has none}]"},
		{[]Cell{{"c", both}}, Machine{TPU: true}, "[{c it uses a GPU, and this VM has none}]"},
		{[]Cell{{"c", both}, {"d", nil}}, Machine{true, true}, "[]"},
	} {
		if got := fmt.Sprint(Unmet(test.cells, test.m)); got != test.want {
			t.Errorf("unmet are %s, want %s", got, test.want)
		}
	}
}
