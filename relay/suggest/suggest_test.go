package suggest

import "testing"

func TestClosest(t *testing.T) {
	known := []string{"status", "states", "run", "runtimes", "restart", "ls", "Lab-1"}
	for typed, want := range map[string]string{
		"stauts": "status", "statsu": "status", "statu": "status", "sta": "status", "rum": "run", "runtime": "runtimes",
		"RESTRAT": "restart", "lab-2": "Lab-1", "l": "", "lss": "ls", "xyz": "", "": "", "frobnicate": "", "größe": "",
	} {
		if got := Closest(typed, known); got != want {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
	if got := Closest("x", nil); got != "" {
		t.Errorf("%q", got)
	}
}

func TestMeant(t *testing.T) {
	if got := Meant("stat", []string{"status"}); got != ` (did you mean "status"?)` {
		t.Errorf("%q", got)
	}
	if got := Meant("x", []string{"status"}); got != "" {
		t.Errorf("%q", got)
	}
}
