/* isthmus predict: images in; boxes, matches and masks out. isthmus segment: masks for given prompts, by the same run,
 * which is predict_job.c, or by clicks in a browser (serve.h). */
#include "serve.h"

int predict_command(int argc, char **argv, predict_job *job) {
    predict_options options;
    bool stop = false;
    job->options = &options;
    int code = predict_parse(argc, argv, &options, &stop);
    if (!stop) {
        predict_catch_interrupts(job);
        code = predict_list_sources(job, argc, argv);
        if (!code) code = options.serve ? serve_run(job) : predict_execute(job);
    }
    predict_job_free(job);
    predict_options_free(&options);
    return code;
}

int cmd_predict(int argc, char **argv) {
    predict_job job = {0};
    return predict_command(argc, argv, &job);
}

int cmd_segment(int argc, char **argv) {
    predict_job job = {0};
    return predict_command(argc, argv, &job);
}
