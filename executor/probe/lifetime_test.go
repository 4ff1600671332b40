package probe

import (
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

func TestSessionMinutesLeftIsThePublishedLimitLessTheUptime(t *testing.T) {
	limit := sessionLimit{most: 12 * time.Hour}
	for name, tc := range map[string]struct {
		limit  sessionLimit
		uptime time.Duration
		want   float64 // below 0 for none
	}{
		"at the start":       {limit, 0, 720},
		"near the end":       {limit, 12*time.Hour - 25*time.Minute, 25},
		"outlived":           {limit, 13 * time.Hour, -1}, // a paid plan
		"no published limit": {sessionLimit{}, time.Hour, -1},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := New(Config{})
			p.session = func() session { return session{time.Now().Add(-tc.uptime), tc.limit} }
			got := p.SessionMinutesLeft()
			if (got == nil) != (tc.want < 0) || got != nil && *got != tc.want {
				t.Errorf("%s: %v, want %v", name, got, tc.want)
			}
		})
	}
}

func TestTheSessionsLimitIsThePlatforms(t *testing.T) {
	gpu := fstest.MapFS{"dev/nvidia0": &fstest.MapFile{}, "dev/nvidiactl": &fstest.MapFile{}}
	env := func(name string) func(string) string {
		return func(asked string) string {
			if asked == name {
				return "1"
			}
			return ""
		}
	}
	for name, tc := range map[string]struct {
		variable string
		root     fstest.MapFS
		want     time.Duration
	}{
		"Colab":               {"COLAB_RELEASE_TAG", gpu, 12 * time.Hour},
		"Kaggle":              {"KAGGLE_KERNEL_RUN_TYPE", fstest.MapFS{}, 12 * time.Hour},
		"Kaggle with a GPU":   {"KAGGLE_KERNEL_RUN_TYPE", gpu, 9 * time.Hour},
		"a machine with none": {"HOME", gpu, 0},
	} {
		p := New(Config{Getenv: env(tc.variable), Started: time.Now()})
		p.root = tc.root
		if got := p.inspectSession(); got.limit.most != tc.want || got.start.After(time.Now()) {
			t.Errorf("%s: %v from %v on", name, got.limit.most, got.start)
		}
	}
}
