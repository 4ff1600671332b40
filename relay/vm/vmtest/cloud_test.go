package vmtest

import "testing"

func TestCloudIsABackend(t *testing.T) {
	Suite(t, func(t *testing.T) Fixture { return NewCloud(t).Fixture() })
}
