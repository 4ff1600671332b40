package probe

import (
	"bytes"
	"context"
	"io/fs"
	"math"
	"os/exec"
	"path"
	"strconv"
	"strings"
	"time"

	"colabrelay/shared/contract"
)

const (
	// nvidiaLimit: with a broken driver nvidia-smi hangs for a minute and more.
	nvidiaLimit = time.Second
	maxGPUs     = 64
)

// gpuFields is what nvidia-smi is asked for, in the order parseGPUs expects.
const gpuFields = "index,name,memory.used,memory.total,utilization.gpu,utilization.memory"

func gpu(ctx context.Context, root fs.FS) contract.GPU {
	ctx, cancel := context.WithTimeout(ctx, nvidiaLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+gpuFields, "--format=csv,nounits,noheader")
	cmd.WaitDelay = nvidiaLimit
	out, err := cmd.Output()
	if err != nil {
		return contract.GPU{Devices: []contract.GPUDevice{}}
	}
	devices := parseGPUs(out)
	driver, _ := fs.ReadFile(root, "proc/driver/nvidia/version")
	return contract.GPU{Available: len(devices) > 0, Driver: driverVersion(driver), Devices: devices}
}

// parseGPUs reads nvidia-smi's table, a GPU a line. A name may hold commas; a
// field that is no number, such as [N/A], is null. A line with too few fields is
// a message and no GPU.
func parseGPUs(table []byte) []contract.GPUDevice {
	devices := []contract.GPUDevice{}
	for line := range bytes.Lines(table) {
		fields := strings.Split(strings.ToValidUTF8(string(line), "�"), ",")
		n := len(fields)
		if n < 6 || len(devices) == maxGPUs {
			continue
		}
		d := contract.GPUDevice{
			Name:           strings.TrimSpace(strings.Join(fields[1:n-4], ",")),
			MemoryUsedMB:   parseFloat(fields[n-4]),
			MemoryTotalMB:  parseFloat(fields[n-3]),
			UtilizationPct: parseFloat(fields[n-2]),
		}
		if index, err := strconv.Atoi(strings.TrimSpace(fields[0])); err == nil {
			d.Index = &index
		}
		devices = append(devices, d)
	}
	return devices
}

// parseFloat is nil for what is no finite number: JSON has no NaN.
func parseFloat(s string) *float64 {
	x, err := strconv.ParseFloat(strings.TrimSpace(s), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// driverVersion is the first version number on the first line of
// /proc/driver/nvidia/version, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat …".
func driverVersion(file []byte) string {
	first, _, _ := bytes.Cut(file, []byte("\n"))
	for _, word := range strings.Fields(string(first)) {
		if strings.Trim(word, "0123456789.") == "" && strings.Contains(word, ".") {
			return word
		}
	}
	return ""
}

// tpu looks for device files and Colab's variable. Importing jax to ask would
// take the TPU away from the user's own code.
func tpu(getenv func(string) string, root fs.FS) contract.TPU {
	devices := []string{}
	for _, pattern := range []string{"dev/accel*", "dev/vfio/*"} {
		found, _ := fs.Glob(root, pattern)
		for _, device := range found {
			if path.Base(device) != "vfio" { // the control device, there without any TPU
				devices = append(devices, "/"+device)
			}
		}
	}
	return contract.TPU{Available: len(devices) > 0 || getenv("COLAB_TPU_1VM") != "", Devices: devices}
}
