package probe

import (
	"encoding/json"
	"math"
	"testing"
)

// FuzzMemory reads any figures of control groups and of the machine's memory.
func FuzzMemory(f *testing.F) {
	f.Add("0::/a/b\n", "500\n", "100\n", "inactive_file 300\n", "MemTotal: 100 kB\nMemAvailable: 50 kB\n")
	f.Add("5:cpu,memory:/../x\n0::/\n", "max\n", "18446744073709551615", "inactive_file -1", "MemTotal: 99999999999999999999 kB")
	f.Add("::::\n:memory:\n", "-1", "", "inactive_file", "MemAvailable:")
	f.Fuzz(func(t *testing.T, own, limit, used, stat, meminfo string) {
		root := tree(map[string]string{
			"proc/self/cgroup": own, "sys/fs/cgroup/memory.max": limit, "sys/fs/cgroup/memory.current": used, "sys/fs/cgroup/memory.stat": stat,
			"sys/fs/cgroup/memory/memory.limit_in_bytes": limit, "sys/fs/cgroup/memory/memory.usage_in_bytes": used,
			"sys/fs/cgroup/a/memory.max": used, "sys/fs/cgroup/a/memory.current": limit,
		})
		machine := Mem{Total: kilobytes([]byte(meminfo), "MemTotal:"), Available: kilobytes([]byte(meminfo), "MemAvailable:")}
		machine.Used = machine.Total - min(machine.Total, machine.Available)
		got := machine.within(limitedLevels(root).read(root))
		if got.Total > max(machine.Total, math.MaxInt64) || got.Total > 0 && got.UsedPct() < 0 {
			t.Errorf("%+v of %+v", got, machine)
		}
		if _, err := json.Marshal(got.UsedPct()); err != nil {
			t.Error(err)
		}
	})
}
