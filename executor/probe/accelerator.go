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

	"colabrelay/executor/account"
	"colabrelay/shared/contract"
)

const (
	// nvidiaLimit is how long nvidia-smi may run. With a broken driver it hangs for minutes.
	nvidiaLimit = time.Second
	maxGPUs     = 64
)

// gpuFields are the fields that nvidia-smi prints, in the order that parseGPUs expects.
const gpuFields = "index,name,memory.used,memory.total,utilization.gpu,utilization.memory"

func gpu(ctx context.Context, as *account.User, root fs.FS) contract.GPU {
	ctx, cancel := context.WithTimeout(ctx, nvidiaLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nvidia-smi", "--query-gpu="+gpuFields, "--format=csv,nounits,noheader")
	cmd.WaitDelay = nvidiaLimit
	out, err := as.Output(cmd) // PATH may lead to a program of that user
	if err != nil {
		return contract.GPU{Devices: []contract.GPUDevice{}}
	}
	devices := parseGPUs(out)
	driver, _ := fs.ReadFile(root, "proc/driver/nvidia/version")
	return contract.GPU{Available: len(devices) > 0, Driver: driverVersion(driver), Devices: devices}
}

// parseGPUs reads nvidia-smi's table, which has a line for each GPU. A name may contain
// commas. A field that is not a number, such as [N/A], becomes null. A line with too few
// fields is a message and is skipped.
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

// parseFloat is nil unless s is a finite number: JSON has no NaN.
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

// tpu checks for device files and Colab's environment variable. It does not import jax,
// which would reserve the TPU and keep the user's code from using it.
func tpu(getenv func(string) string, root fs.FS) contract.TPU {
	devices := []string{}
	for _, pattern := range []string{"dev/accel*", "dev/vfio/*"} {
		found, _ := fs.Glob(root, pattern)
		for _, device := range found {
			if path.Base(device) != "vfio" { // the control device, which also exists without a TPU
				devices = append(devices, "/"+device)
			}
		}
	}
	return contract.TPU{Available: len(devices) > 0 || getenv("COLAB_TPU_1VM") != "", Devices: devices}
}
