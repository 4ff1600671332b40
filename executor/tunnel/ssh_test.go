package tunnel

import "testing"

func TestSSHServesThroughARealSSHD(t *testing.T) {
	s := startSSHD(t)
	url := start(t, mustNew(t, s.Config()), hello).url(t)
	if _, body, err := visit(t, url); err != nil || body != "hello" {
		t.Errorf("got %q, %v", body, err)
	}
}
