/* A stand-in for the driver's libnvidia-ml.so.1: two GPUs, of which the second, a MIG slice, has no utilization and no
 * power of its own. Names, structures and return codes as in NVIDIA's NVML API reference (nvml.h). */
#include <stdio.h>
#include <string.h>

typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;
enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

static struct gpu {
    const char *uuid;
    int mig;
} gpus[] = {{"GPU-11111111-aaaa", 0}, {"MIG-22222222-bbbb", 1}};

typedef struct {
    unsigned int gpu, memory;
} nvmlUtilization_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

nvmlReturn_t nvmlInit_v2(void) { return SUCCESS; }
nvmlReturn_t nvmlInitWithFlags(unsigned int flags) { return flags ? INVALID_ARGUMENT : SUCCESS; }
nvmlReturn_t nvmlShutdown(void) { return SUCCESS; }
const char *nvmlErrorString(nvmlReturn_t code) { return code == NOT_SUPPORTED ? "Not Supported" : "Error"; }

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
    *count = 2;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
    if (index >= 2) return INVALID_ARGUMENT;
    *device = &gpus[index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
    for (int index = 0; index < 2; index++)
        if (!strcmp(gpus[index].uuid, uuid)) return nvmlDeviceGetHandleByIndex_v2(index, device);
    return NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
    snprintf(uuid, length, "%s", device->uuid);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *rates) {
    if (device->mig) return NOT_SUPPORTED;
    rates->gpu = 75;   /* percent */
    rates->memory = 0; /* idle is a figure, not a lack of one */
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
    memory->total = (device->mig ? 10ULL : 80ULL) << 30; /* bytes */
    memory->used = 3ULL << 30;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned int *celsius) {
    (void)device;
    if (sensor) return INVALID_ARGUMENT;
    *celsius = 61;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *milliwatts) {
    if (device->mig) return NOT_SUPPORTED;
    *milliwatts = 123500;
    return SUCCESS;
}
