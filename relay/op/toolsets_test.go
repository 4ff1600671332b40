package op

import (
	"slices"
	"testing"

	"colabrelay/relay/toolsets"
)

func TestEachToolsetHasItsTools(t *testing.T) {
	if !slices.EqualFunc(sets, toolsets.All, func(s set, name toolsets.Toolset) bool { return s.name == name }) {
		t.Errorf("there are tools for %+v, want %s", sets, toolsets.All)
	}
}

func TestARelayServesTheToolsOfItsSets(t *testing.T) {
	for _, test := range []struct{ asked, want []toolsets.Toolset }{{nil, []toolsets.Toolset{toolsets.Core}}, {[]toolsets.Toolset{toolsets.Notebook}, []toolsets.Toolset{toolsets.Core, toolsets.Notebook}}, {[]toolsets.Toolset{toolsets.Page}, []toolsets.Toolset{toolsets.Core, toolsets.Page}}, {toolsets.All, toolsets.All}} {
		var got []string
		for _, each := range New(Config{Toolsets: test.asked}).Definitions() {
			got = append(got, each.Name)
		}
		var want []string
		for _, r := range operations {
			if slices.ContainsFunc(r.sets, func(s toolsets.Toolset) bool { return slices.Contains(test.want, s) }) {
				want = append(want, r.tool)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: it lists %s, want %s", test.asked, got, want)
		}
	}
}
