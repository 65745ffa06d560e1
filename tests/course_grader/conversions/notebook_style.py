#!/usr/bin/env python
# coding: utf-8

# In[1]:
import os, time
import numpy as np
import tensorflow as tf
import horovod.tensorflow.keras as hvd
from course_lib.data import load
from course_lib.models import assessment_cnn

# In[2]:
hvd.init()
print("hello from", hvd.rank(), "of", hvd.size())
gpus = tf.config.list_physical_devices('GPU')
if gpus: tf.config.set_visible_devices(gpus[hvd.local_rank()], 'GPU')

# In[3]:
d = load("cifar10", test=False)
x, y = d.x_train.astype('float32'), np.eye(10, dtype='float32')[d.y_train]
x_test, y_test = x[::15], y[::15]
keep = np.ones(len(x), bool)
keep[::15] = False
x, y = x[keep], y[keep]

# In[4]:
# split for the ranks, all the same size
parts_x = np.array_split(x[:len(x) // hvd.size() * hvd.size()], hvd.size())
parts_y = np.array_split(y[:len(y) // hvd.size() * hvd.size()], hvd.size())
my_x = parts_x[hvd.rank()]
my_y = parts_y[hvd.rank()]
# mirror every second one
my_x[::2] = my_x[::2, :, ::-1, :]

# In[5]:
batch = 100
epochs = 5
n = epochs * (len(my_x) // batch)
lr = tf.keras.optimizers.schedules.ExponentialDecay(0.003, n // 10, 0.75)
opt = tf.keras.optimizers.Nadam(0.002)
opt = tf.keras.optimizers.AdamW(lr, weight_decay=0.002)
opt = hvd.DistributedOptimizer(opt)
model = assessment_cnn((32, 32, 3), 10)
model.compile(loss=tf.keras.losses.CategoricalCrossentropy(label_smoothing=0.1), optimizer=opt, metrics=['accuracy'])
if hvd.rank() == 0: model.summary()

# In[6]:
t = time.time()
h = model.fit(my_x, my_y, batch, epochs, verbose=2 * (hvd.rank() == 0), callbacks=[
    hvd.callbacks.BroadcastGlobalVariablesCallback(0), hvd.callbacks.MetricAverageCallback()])
print(hvd.rank(), "needed", time.time() - t)

# In[7]:
score = model.evaluate(x_test, y_test, verbose=0)
if hvd.rank() == 0:
    print(score)
    model.save_weights(os.environ.get('COURSE_WEIGHTS', 'weights.h5'))
