package main

import (
	"context"
	"os"
	"reflect"
	"testing"
	"time"

	"go.uber.org/goleak"

	"colabrelay/shared/e2e/harness"
	"colabrelay/shared/smalldisk"
	"colabrelay/shared/stacks"
	"colabrelay/shared/tier"
)

// The programs keep their promises through the first steps of a plan. make soak takes more
// steps, of other plans.
func TestTheProgramsKeepTheirPromisesThroughASampleOfFaults(t *testing.T) {
	tier.Long(t)
	if smalldisk.Run(t, 1) == "" { // so that the suite may mount disks
		return
	}
	t.Setenv(isolated, "1")
	defer goleak.VerifyNone(t)
	o := options{seed: 251, steps: 6, time: time.Hour, python: stacks.Old(t).Python, laptops: 3}
	dir, err := os.MkdirTemp("", "faults-")
	if err != nil {
		t.Fatal(err)
	}
	if o.binary, err = harness.Build(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
	defer cancel()
	if err := newSuite(o, dir, t.Output()).run(ctx); err != nil {
		t.Fatalf("%v\nThe folders of both sides are in %s", err, dir)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Error(err)
	}
}

func TestAPlanFollowsFromItsSeed(t *testing.T) {
	lines := map[string]bool{}
	for number := range 100 {
		p, again := plan(7, number, 3), plan(7, number, 3)
		if !reflect.DeepEqual(p, again) {
			t.Errorf("the same seed gives %s, then %s", p, again)
		}
		lines[p.String()], lines[plan(8, number, 3).String()] = true, true
	}
	if len(lines) != 200 {
		t.Errorf("200 steps of two seeds have %d different plans", len(lines))
	}
}
