package environ

import (
	"slices"
	"testing"
)

func TestOnlyNamedVariablesAreKept(t *testing.T) {
	got := Only([]string{"PATH=/bin", "Path=C:\\", "PATHS=x", "LC_ALL=C", "LC=x", "X_LC_ALL=x", "ProgramFiles(x86)=C", "https_proxy=p", "=C:=C:\\", "", "AWS_SECRET_ACCESS_KEY=x", "HOME="}, Basic, Proxies)
	if want := []string{"PATH=/bin", "Path=C:\\", "LC_ALL=C", "ProgramFiles(x86)=C", "https_proxy=p", "HOME="}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Only([]string{"A=1"}); got == nil || len(got) != 0 {
		t.Errorf("nothing is named: %#v, which may mean all", got)
	}
}
